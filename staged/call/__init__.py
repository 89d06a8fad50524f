"""From a Python call to a program and back: functions, guards, programs, their cache and memory."""
