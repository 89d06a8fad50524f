"""What a program's folder has besides the program: `main`, readers and writers of files, build files, examples."""
