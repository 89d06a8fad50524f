"""The host part of a program: a shared library, built by the C compiler, that contains the kernels' machine code.

The text is the program's own, compiled as C with `HOST_ONLY`; a line of assembler includes the machine code.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from staged.base.artifact import Artifact, image_text
from staged.runtime.compiler import LIBRARIES, CompileFailure, explained, find_compiler
from staged.runtime.cuda.building import SHARED, build, program_texts
from staged.runtime.cuda.emulated import libraries_of_users, linked_libraries
from staged.runtime.cuda.nvrtc import Kernels
from staged.runtime.cuda.toolkit import include_folders, load_libraries
from staged.runtime.options import CompileOptions


def compile_host(artifact: Artifact, kernels: Kernels, options: CompileOptions) -> Path:
    """The shared library of a program for the GPUs of `kernels`. Its CUDA libraries are loaded too.

    Raises: CompilerError if there is no compiler or it rejects the text; DependencyError for missing CUDA libraries;
    CacheError.
    """
    name = artifact.name
    compiler = find_compiler()
    called = linked_libraries(artifact.link)
    libraries = [*map(str, load_libraries(called)), *libraries_of_users(artifact.link)]
    folders = [str(folder) for folder in include_folders(called)]
    flags = (*compiler.base_flags, *SHARED, "-DHOST_ONLY", *artifact.flags, *options.flags())
    # A warning in NVIDIA's headers is not ours.
    includes = [word for folder in folders for word in ("-isystem", folder)]
    image = ("-x", "assembler", f"-Wa,-I{kernels.cubin.parent}", f"{name}_image.s", "-x", "none")
    code = hashlib.sha256(kernels.cubin.read_bytes()).hexdigest()
    depends = (*compiler.command, compiler.version, *flags, *folders, *libraries, code)
    try:
        return build(
            name,
            f"{name}.so",
            {**program_texts(artifact), f"{name}_image.s": image_text(name, f"{name}.cubin")},
            (*compiler.command, *flags, *includes),
            ("-x", "c", f"{name}.cu", *image, *libraries, *LIBRARIES),
            depends,
        )
    except CompileFailure as failure:
        raise explained(artifact, failure) from None
