"""Planted faults in the examples."""

from tests.mutate.mutant import Mutant

MUTANTS = (
    Mutant(
        "an example on the GPU runs on the CPU",
        "examples/command_line.py:region",
        "st.with_backend(st.GPU)",
        "st.with_backend(st.CPU)",
        ("tests/programs/test_example_scripts.py::test_a_program_is_shown_for_where_it_runs",),
    ),
    Mutant(
        "a place sees the places to come",
        "examples/gpt2/model.py:Attention.step",
        "st.arange(keys.shape[1]) <= place",
        "st.arange(keys.shape[1]) <= place + 1",
        ("tests/programs/test_gpt2.py::test_what_is_drawn_with_the_cache_has_the_scores_of_the_whole_text",),
    ),
    Mutant(
        "a resumed run draws its texts from the beginning",
        "examples/gpt2/train.py:Training.state_dict",
        '("model", "optimizer", "schedule", "draws")',
        '("model", "optimizer", "schedule")',
        ("tests/programs/test_gpt2.py::test_ten_steps_have_torchs_losses_and_a_resumed_run_the_same_bits",),
    ),
    Mutant(
        "llm.c's matrices stay transposed",
        "examples/gpt2/weights.py:of_llmc",
        'state[f"h.{layer}.{name}"] = array.T',
        'state[f"h.{layer}.{name}"] = array if array.shape[0] == array.shape[-1] else array.T',
        ("tests/programs/test_gpt2.py::test_logits_of_published_weights_are_torchs",),
    ),
    Mutant(
        "a decoder sees the digits that it is to write",
        "examples/transformer/train.py:Rewriter.forward",
        "self.transformer(self.embedded(read), self.embedded(written), tgt_is_causal=True)",
        "self.transformer(self.embedded(read), self.embedded(written))",
        ("tests/programs/test_transformer.py",),
    ),
    Mutant(
        "gains of carts that have fallen are counted",
        "examples/reinforce/train.py:gains_of",
        "standing * (gains - mean)",
        "gains - mean",
        ("tests/programs/test_reinforce.py::test_gains_are_the_rewards_to_come_in_deviations",),
    ),
    Mutant(
        "the filter forgets the force",
        "examples/kalman_mpc/control.py:filtered",
        "a @ estimate + b * force",
        "a @ estimate",
        ("tests/programs/test_kalman_mpc.py::test_the_filter_is_kalmans",),
    ),
    Mutant(
        "a letter that is held is heard twice",
        "examples/deepspeech2/train.py:heard",
        "(best != before) & (best != 0)",
        "best != 0",
        ("tests/programs/test_deepspeech2.py::test_letters_are_heard_once_each_and_blanks_not",),
    ),
    Mutant(
        "a residual network forgets what came in",
        "examples/resnet50/model.py:Bottleneck.forward",
        "self.bn3(self.conv3(y)) + self.downsample(x)",
        "self.bn3(self.conv3(y))",
        ("tests/programs/test_image_models.py::test_ten_steps_have_torchs_losses_and_statistics",),
    ),
)
