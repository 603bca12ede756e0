"""A checkpoint does not fit the model."""

from jobmeter.diagnose.causes import Cause

RULE = Cause(
    name="checkpoint_mismatch",
    sees="A checkpoint and the model have other parameters.",
    advice=("Load the checkpoint with the configuration that it was made with, or leave the parts out that differ."),
    raised=(
        r"Error\(s\) in loading state_dict",
        r"Missing key\(s\) in state_dict",
        r"Unexpected key\(s\) in state_dict",
        r"size mismatch for \S+: copying",
        "loading state_dict for",
        "(?:checkpoint|state_dict).{0,80}(?:mismatch|not match|incompatible)",
        "invalid magic number",
        "PytorchStreamReader failed",
    ),
).rule
