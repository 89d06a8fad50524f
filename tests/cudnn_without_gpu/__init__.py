"""NVIDIA's cuDNN as an oracle without a GPU.

cuDNN 9.8 and later build plans for a device that is only described. So cuDNN tells, on every machine, whether it accepts the
graphs that generated programs make, which engines it offers for them, and how much workspace their plans need. Nothing runs: the
values of results are not known.

| file           | purpose                                                                            |
|----------------|------------------------------------------------------------------------------------|
| `questions.py` | the graphs in a program's text, and programs that have given graphs                |
| `asking.py`    | compile a program with the oracle, and let it open a described device              |
| `oracle.c`     | what answers the program's calls: cuDNN, with the description in place of a handle |
| `driver.c`     | a stand-in for `libcuda.so.1`, which NVIDIA's libraries load                       |
| `devices.py`   | the descriptions of devices in `tests/gpu_check/devices/`                          |
| `report.py`    | the report `docs/results/cudnn_without_gpu.json`, and the list of graphs in it     |
| `recorder.py`  | a plugin of pytest that notes the graphs of the tests' programs                    |

`python -m tests.cudnn_without_gpu --record tests/FOLDER` adds the graphs of these tests to the report.
"""
