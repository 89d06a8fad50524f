"""Planted faults of arguments: what functions are asked for at the edges, by NumPy's and torch's words, and by gradients' names."""

from __future__ import annotations

from tests.mutate.mutant import Mutant

_MAP, _SHAPE, _RANDOM = "staged/ops/numpy_map.py", "staged/ops/shape.py", "staged/ops/random.py"
_NUMPY, _ARGUMENTS, _SPECIAL = "tests/eager/test_numpy.py", "tests/ops/test_arguments.py", "tests/ops/test_special_points.py"
_MODULE, _LAYERS, _MODULES = "staged/nn/module.py", "tests/nn/test_layers.py", "tests/nn/test_module.py"
_OPTIMIZER, _CLIPPING, _OPTIONS = "staged/optim/optimizer.py", "staged/optim/clipping.py", "tests/optim/test_options.py"
_WORDS, _TORCH = "staged/ops/torch_words.py", "tests/ops/test_torch_words.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "the first value of a reduction of NumPy's is left out",
        _MAP,
        '{"axis": 0, **options})',
        '{"axis": 0, **{key: value for key, value in options.items() if key != "initial"}})',
        (_NUMPY, "-k", "initial"),
    ),
    Mutant(
        "a mask for NumPy's `where` is taken for a bool",
        _MAP,
        "not isinstance(value, Array | np.ndarray) and value in known",
        "not isinstance(value, Array) and value in known",
        (_NUMPY, "-k", "where"),
    ),
    Mutant(
        "a power that NumPy takes in floats is one of integers",
        _MAP,
        '_OF_FLOATS = ("fabs", "float_power")',
        '_OF_FLOATS = ("fabs",)',
        (_NUMPY, "-k", "power"),
    ),
    Mutant(
        "a list with an array of complex numbers is ours",
        _MAP,
        "return any(map(_is_foreign, value))",
        "return False",
        (_NUMPY, "-k", "complex"),
    ),
    Mutant(
        "the square under a negative power of integers wraps around",
        "staged/ops/elementwise.py",
        "if (isinstance(power, float) or power < 0) and not base.dtype.is_float:",
        "if isinstance(power, float) and not base.dtype.is_float:",
        ("tests/ops/test_functions.py", "-k", "pow"),
    ),
    Mutant(
        "two axes move to one place",
        _SHAPE,
        "if len(set(fro)) < len(fro) or len(set(to)) < len(to):",
        "if len(set(fro)) < len(fro):",
        (_ARGUMENTS, "-k", "moveaxis"),
    ),
    Mutant(
        "the negative of a shift without a sign wraps around",
        _SHAPE,
        "first = -int(shift) % extent",
        "first = -shift % extent",
        (_ARGUMENTS, "-k", "sizes"),
    ),
    Mutant(
        "the keys of a dict are widths",
        _SHAPE,
        "elif isinstance(pad_width, Mapping):",
        "elif isinstance(pad_width, str):",
        (_ARGUMENTS, "-k", "dict"),
    ),
    Mutant(
        "random integers of a wide range wrap around",
        _RANDOM,
        "past - least <= 2**31,",
        "past - least <= 2**33,",
        (_ARGUMENTS, "-k", "integers"),
    ),
    Mutant(
        "random integers wrap around in their dtype",
        _RANDOM,
        "check_fits(past - 1, wanted)",
        "check_fits(least, wanted)",
        (_ARGUMENTS, "-k", "integers"),
    ),
    Mutant(
        "an infinite delta multiplies the slope of the line that is not taken",
        "staged/ops/losses.py",
        "slope = where(size < delta, 1.0, delta)",
        "slope = delta",
        (_SPECIAL, "-k", "end_of_their_range"),
    ),
    Mutant(
        "a dropout of everything scales by inf",
        "staged/ops/composites.py",
        "1.0 / where(p < 1.0, 1.0 - p, 1.0)",
        "1.0 / (1.0 - p)",
        (_SPECIAL, "-k", "end_of_their_range"),
    ),
    Mutant(
        "an ellipsis of no axes does not keep index arrays apart",
        "staged/ops/subscript.py",
        "*(fill or [Ellipsis])",
        "*fill",
        ("tests/ops/test_index.py", "-k", "numpy"),
    ),
    Mutant(
        "no elements make one chunk",
        _WORDS,
        "-(-extent // int(chunks)) or [0] * int(chunks)",
        "-(-extent // int(chunks)) or [0]",
        (_TORCH, "-k", "chunk"),
    ),
    Mutant(
        "a row that is selected by one index loses its axis",
        _WORDS,
        "chosen if chosen.ndim else",
        "chosen if True else",
        (_TORCH, "-k", "index_select"),
    ),
    Mutant(
        "gradients by name go to parameters without a name in the order they come",
        _OPTIMIZER,
        "for names in (self.names, own):",
        "for names in (self.names,):",
        (_OPTIONS, "-k", "another_order"),
    ),
    Mutant(
        "a gradient goes to a parameter of another name",
        _OPTIMIZER,
        "if not _is_path_of(path, name) and any(",
        "if not str(path) and any(",
        (_OPTIONS, "-k", "another_parameters_place"),
    ),
    Mutant(
        "the class in a layer's name hides its place",
        _OPTIMIZER,
        'one.isdigit() and other.rstrip("0123456789") + one == other',
        "one.isdigit()",
        (_OPTIONS, "-k", "another_parameters_place"),
    ),
    Mutant(
        "what has no shape is taken for a gradient",
        _OPTIMIZER,
        'if not hasattr(grad, "shape"):',
        "if grad is Ellipsis:",
        (_OPTIONS, "-k", "no_gradient"),
    ),
    Mutant(
        "numbers are no gradients to scale",
        _CLIPPING,
        "        array = st.asarray(leaf)\n        return array * st.astype(scale, array.dtype)",
        "        return leaf * st.astype(scale, leaf.dtype)",
        (_OPTIONS, "-k", "clipped_as_gradients"),
    ),
    Mutant(
        "a parameter by the name of an empty buffer is not trained",
        _MODULE,
        "if isinstance(value, Parameter):",
        "if value is Ellipsis:",
        (_MODULES, "-k", "of_a_buffer"),
    ),
    Mutant(
        "a name that was deleted stays a buffer's",
        _MODULE,
        "object.__delattr__(self, name)\n        self._forget_buffer(name)",
        "object.__delattr__(self, name)",
        (_MODULES, "-k", "of_a_buffer"),
    ),
    Mutant(
        "a buffer that becomes persistent is not saved",
        _MODULE,
        "        self._forget_buffer(name)\n        object.__setattr__(self, \"_buffers\"",
        "        object.__setattr__(self, \"_buffers\"",
        (_MODULES, "-k", "of_a_buffer"),
    ),
    Mutant(
        "a container takes anything",
        _MODULE,
        "if not isinstance(module, Module):",
        "if module is Ellipsis:",
        (_MODULES, "-k", "held_by_containers"),
    ),
    Mutant(
        "the row of padding is trained by its index from the end",
        "staged/nn/layers.py",
        "(given == self.padding_idx) | (given == self.padding_idx - self.num_embeddings)",
        "given == self.padding_idx",
        (_LAYERS, "-k", "padding"),
    ),
    Mutant(
        "padding is looked for among u8 indices",
        "staged/nn/layers.py",
        "given = st.astype(indices, st.i64)",
        "given = st.asarray(indices)",
        (_LAYERS, "-k", "padding"),
    ),
    Mutant(
        "a bias of one number is added to all channels",
        "staged/ops/convolution.py",
        "if added.shape != y.shape[1:2]:",
        "if added.shape not in (y.shape[1:2], (1,)):",
        ("tests/ops/test_convolution.py", "-k", "bad_calls"),
    ),
    Mutant(
        "a layer adds its bias to images without a batch as to a batch",
        "staged/nn/convolution.py",
        "return st.conv2d(x, self.weight.value, bias, self.stride, self.padding, self.dilation, self.groups)",
        "y = st.conv2d(x, self.weight.value, None, self.stride, self.padding, self.dilation, self.groups)\n"
        "        return y if bias is None else y + st.reshape(bias, (1, -1, 1, 1))",
        ("tests/ops/test_convolution.py", "-k", "without_a_batch"),
    ),
    Mutant(
        "a cell takes a sequence for one sample",
        "staged/nn/recurrent.py",
        "if len(x.shape) not in (1, 2) or x.shape[-1] != self.input_size:",
        "if x.shape[-1] != self.input_size:",
        ("tests/nn/test_recurrent.py", "-k", "bad_calls"),
    ),
    Mutant(
        "a bound that is NaN bounds nothing",
        "staged/ops/elementwise.py",
        "if math.isnan(limit) if is_number(limit) else type_of(limit).dtype.is_float:",
        "if is_number(limit) and math.isnan(limit):",
        (_SPECIAL, "-k", "bound_that_is_nan"),
    ),
    Mutant(
        "more axes are summed over than there are",
        "staged/ops/contraction.py",
        "if axes > min(left.ndim, right.ndim):",
        "if axes > left.ndim:",
        (_ARGUMENTS, "-k", "tensordot"),
    ),
    Mutant(
        "a number of classes is negative",
        "staged/ops/source.py",
        'classes,) = static_shape(classes, "one_hot")',
        "classes,) = (classes,)",
        (_ARGUMENTS, "-k", "one_hot"),
    ),
)
