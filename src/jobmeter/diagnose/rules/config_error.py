"""A program does not understand its arguments or its configuration."""

from jobmeter.diagnose.causes import Cause

RULE = Cause(
    name="config_error",
    title="Config error",
    sees="Arguments or a configuration file are wrong.",
    advice="Compare the command with the program's --help, and the file with its schema.",
    lines=(
        ": error: (?:unrecognized arguments|the following arguments are required|argument )",
        ": error: (?:invalid choice|one of the arguments|ambiguous option)",
        "^Error: (?:No such option|Missing option|Missing argument|Missing parameter|Invalid value)",
        "^Error: (?:Got unexpected extra argument|No such command|Option .{1,60} requires)",
        r"(?:invalid|unknown|unrecognized) option (?:-- )?['\"-]",
        "unrecognized command.line (?:flag|option|argument)",
        "FATAL Flags parsing error",
        "ValueError: Some specified arguments are not used by the HfArgumentParser",
        "Could not override '",
    ),
    raised=(
        r"omegaconf\.errors",
        r"hydra\.errors",
        r"yaml\.(?:scanner|parser|constructor|composer|reader)\.",
        r"(?:jsonargparse|argparse)\.\w*(?:Error|Exception)",
        r"MissingMandatoryValue|InterpolationKeyError|MissingConfigException|ConfigCompositionException",
        r"tomllib?\.\w*DecodeError",
        r"pydantic\S*ValidationError",
        r"\bConfig(?:uration|Key|Attribute|Type|Value)?(?:Error|Exception)\b",
        r"configparser\.\w+Error",
        "error: unrecognized",
    ),
).rule
