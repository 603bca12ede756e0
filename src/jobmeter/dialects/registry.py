"""Lists the dialects: the only file that names them. The server tries them in this order."""

from collections.abc import Sequence

from jobmeter.dialects.base import Dialect, View, ViewCall


def view_calls(view: View) -> Sequence[tuple[str, ViewCall]]:
    """Return the title of the API and the call, for each dialect that can return the data of a chart."""
    from jobmeter.dialects import baseten, cms, foas, modelarts, opentsdb, pai_dlc, pai_studio
    from jobmeter.dialects.baseten.view import view_call as of_baseten
    from jobmeter.dialects.cms.view import view_call as of_cms
    from jobmeter.dialects.foas.view import view_call as of_foas
    from jobmeter.dialects.modelarts.view import view_call as of_modelarts
    from jobmeter.dialects.opentsdb.view import view_call as of_opentsdb
    from jobmeter.dialects.pai_dlc.view import view_call as of_pai_dlc
    from jobmeter.dialects.pai_studio.view import view_call as of_pai_studio

    found = (
        (pai_dlc.PAI_DLC.title, of_pai_dlc(view)),
        (pai_studio.PAI_STUDIO.title, of_pai_studio(view)),
        (cms.CMS.title, of_cms(view)),
        (foas.FOAS.title, of_foas(view)),
        (modelarts.MODELARTS.title, of_modelarts(view)),
        (baseten.BASETEN.title, of_baseten(view)),
        (opentsdb.OPENTSDB.title, of_opentsdb(view)),
    )
    return [(title, call) for title, call in found if call is not None]


def dialects() -> Sequence[Dialect]:
    """Return every dialect, in the order in which a call is offered to them."""
    from jobmeter.dialects.alertmanager import ALERTMANAGER
    from jobmeter.dialects.alibaba.gateway import GATEWAY
    from jobmeter.dialects.baseten import BASETEN
    from jobmeter.dialects.cms import CMS
    from jobmeter.dialects.eas import EAS
    from jobmeter.dialects.eflo import EFLO
    from jobmeter.dialects.foas import FOAS
    from jobmeter.dialects.modelarts import MODELARTS
    from jobmeter.dialects.opentsdb import OPENTSDB
    from jobmeter.dialects.otlp import OTLP
    from jobmeter.dialects.pai_dlc import PAI_DLC
    from jobmeter.dialects.pai_llm_trace import PAI_LLM_TRACE
    from jobmeter.dialects.pai_studio import PAI_STUDIO
    from jobmeter.dialects.prometheus import PROMETHEUS

    return (
        PAI_DLC,
        PAI_STUDIO,
        PAI_LLM_TRACE,
        CMS,
        EAS,
        EFLO,
        FOAS,
        MODELARTS,
        BASETEN,
        PROMETHEUS,
        ALERTMANAGER,
        OPENTSDB,
        OTLP,
        GATEWAY,
    )
