"""A checkpoint does not fit the model."""

from jobmeter.diagnose.causes import Cause

RULE = Cause(
    name="checkpoint_mismatch",
    title="Checkpoint mismatch",
    sees="A checkpoint and the model have other parameters.",
    advice=("Load the checkpoint with the configuration that it was made with, or leave the parts out that differ."),
    raised=(
        r"Error\(s\) in loading state_dict",
        r"Missing key\(s\) in state_dict",
        r"Unexpected key\(s\) in state_dict",
        r"size mismatch for \S+: copying",
        "loading state_dict for",
        "(?:checkpoint|state_dict).{0,80}(?:mismatch|not match|incompatible)",
        r"Error while deserializing header: \w+",
        r"safetensors_rust\.SafetensorError",
        "CheckpointException|CheckpointError",
        "Checkpoint .{0,80}was (?:saved|created) with (?:a )?different",
        "loaded state dict (?:contains a parameter group|has a different number of parameter groups)",
        "Shape of variable .{0,80} doesn't match with shape of tensor",
        "Key .{1,120} not found in checkpoint",
        "unexpected EOF, expected .{0,40} more bytes. The file might be corrupted",
        "invalid magic number",
        "PytorchStreamReader failed",
    ),
).rule
