"""The loss is no longer a number."""

from jobmeter.diagnose.causes import Cause

RULE = Cause(
    name="nan_loss",
    title="NaN loss",
    sees="The loss or the gradients became NaN or infinite.",
    advice="Lower the learning rate, clip gradients, look at the batch; with fp16, at the loss scale.",
    lines=(
        r"(?:loss|gradients?|grad_norm|perplexity)\W{0,4}(?:is |are |became |=|:)?\s*['\"]?(?:nan|inf)\b",
        r"\b(?:nan|inf)\b (?:loss|in (?:loss|gradients?)|or inf (?:found|detected))",
        r"(?:nan or inf|nan/inf|nan values?)[^\n]{0,30}(?:loss|grad|found|detected|output)",
        r"(?:non-finite|not finite)[^\n]{0,30}(?:loss|grad|found|detected|output)",
        "returned nan values",
        "loss is (?:nan|inf|not finite|infinite)",
        r"\bFloatingPointError: (?:invalid value|Loss diverged|NaN|Minimum loss scale)",
        r"Gradient overflow.{0,60}(?:minimum|loss scale 0|abort)",
        "Current loss scale already at minimum",
        "Minimum loss scale reached",
        r"\b(?:train_|eval_|val_)?loss['\"]?\s*[:=]\s*['\"]?(?:tensor\()?\s*-?(?:nan|inf)\b",
        "encountered (?:NaN|Inf|non-finite)",
        "invalid loss, (?:nan|inf)",
        "(?:nan|inf) (?:detected|encountered|found) in (?:loss|grad|model|weights|output|activation)",
    ),
).rule
