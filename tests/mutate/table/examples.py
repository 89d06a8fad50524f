"""Planted faults in the examples."""

from tests.mutate.mutant import Mutant

MUTANTS = (
    Mutant(
        "an example on the GPU runs on the CPU",
        "examples/command_line.py",
        "return st.with_backend(st.GPU) if flags.gpu else",
        "return st.with_backend(st.CPU) if flags.gpu else",
        ("tests/programs/test_example_scripts.py::test_a_program_is_shown_for_where_it_runs",),
    ),
    Mutant(
        "a place sees the places to come",
        "examples/gpt2/model.py",
        "seen = st.arange(keys.shape[1]) <= place",
        "seen = st.arange(keys.shape[1]) <= place + 1",
        ("tests/programs/test_gpt2.py::test_what_is_drawn_with_the_cache_has_the_scores_of_the_whole_text",),
    ),
    Mutant(
        "a resumed run draws its texts from the beginning",
        "examples/gpt2/train.py",
        'for name in ("model", "optimizer", "schedule", "draws")}',
        'for name in ("model", "optimizer", "schedule")}',
        ("tests/programs/test_gpt2.py::test_ten_steps_have_torchs_losses_and_a_resumed_run_the_same_bits",),
    ),
    Mutant(
        "llm.c's matrices stay transposed",
        "examples/gpt2/weights.py",
        "= array.T  # a matrix",
        "= array if array.shape[0] == array.shape[-1] else array.T  # a matrix",
        ("tests/programs/test_gpt2.py::test_logits_of_published_weights_are_torchs",),
    ),
    Mutant(
        "a decoder sees the digits that it is to write",
        "examples/transformer/train.py",
        "y = self.transformer(self.embedded(read), self.embedded(written), tgt_is_causal=True)",
        "y = self.transformer(self.embedded(read), self.embedded(written))",
        ("tests/programs/test_transformer.py",),
    ),
    Mutant(
        "gains of carts that have fallen are counted",
        "examples/reinforce/train.py",
        "return standing * (gains - mean) /",
        "return (gains - mean) /",
        ("tests/programs/test_reinforce.py::test_gains_are_the_rewards_to_come_in_deviations",),
    ),
    Mutant(
        "the filter forgets the force",
        "examples/kalman_mpc/control.py",
        "estimate = a @ estimate + b * force",
        "estimate = a @ estimate",
        ("tests/programs/test_kalman_mpc.py::test_the_filter_is_kalmans",),
    ),
    Mutant(
        "a letter that is held is heard twice",
        "examples/deepspeech2/train.py",
        "is_new = (best != before) & (best != 0)",
        "is_new = best != 0",
        ("tests/programs/test_deepspeech2.py::test_letters_are_heard_once_each_and_blanks_not",),
    ),
    Mutant(
        "a residual network forgets what came in",
        "examples/resnet50/model.py",
        "return st.relu(self.bn3(self.conv3(y)) + self.downsample(x))",
        "return st.relu(self.bn3(self.conv3(y)))",
        ("tests/programs/test_image_models.py::test_ten_steps_have_torchs_losses_and_statistics",),
    ),
)
