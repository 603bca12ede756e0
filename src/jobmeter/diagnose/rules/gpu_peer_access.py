"""Devices cannot reach each other's memory."""

from jobmeter.diagnose.causes import Cause

RULE = Cause(
    name="gpu_peer_access",
    title="GPU peer access",
    sees="Access from one device to another failed.",
    advice="Look at the topology (nvidia-smi topo -m), at IOMMU and ACS, and at NCCL_P2P_DISABLE.",
    lines=(
        "peer access (?:is )?(?:not supported|is already|denied|failed)",
        "cudaErrorPeerAccess",
        "PeerAccessUnsupported",
        "peer mapping resources exhausted",
        "cudaErrorTooManyPeers",
        "P2P.{0,40}(?:failed|not supported|error)",
        "cudaDeviceEnablePeerAccess.{0,60}(?:fail|error)",
        "peer access between .{0,60}(?:not|fail)",
        "invalid (?:peer )?device ordinal for peer",
    ),
).rule
