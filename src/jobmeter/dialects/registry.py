"""The only file that names dialects. The server asks them in this order."""

from collections.abc import Sequence

from jobmeter.dialects.base import Dialect


def dialects() -> Sequence[Dialect]:
    """Every dialect, in the order in which a call is offered to them."""
    from jobmeter.dialects.alibaba.gateway import Gateway
    from jobmeter.dialects.baseten import BASETEN
    from jobmeter.dialects.cms import CMS
    from jobmeter.dialects.foas import FOAS
    from jobmeter.dialects.modelarts import MODELARTS
    from jobmeter.dialects.opentsdb import OPENTSDB
    from jobmeter.dialects.otlp import OTLP
    from jobmeter.dialects.pai_dlc import PAI_DLC
    from jobmeter.dialects.pai_studio import PAI_STUDIO
    from jobmeter.dialects.prometheus import PROMETHEUS

    return (PAI_DLC, PAI_STUDIO, CMS, FOAS, MODELARTS, BASETEN, OPENTSDB, PROMETHEUS, OTLP, Gateway())
