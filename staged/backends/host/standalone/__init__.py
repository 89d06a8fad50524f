"""The other files of an exported program: `main`, readers and writers of files, build files, examples."""
