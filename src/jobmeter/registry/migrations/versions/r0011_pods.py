"""An index of replicas by their pods."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the index."""
    named = sa.text("pod_id <> ''")
    op.create_index("replicas_pod", "replicas", ["pod_id"], sqlite_where=named, postgresql_where=named)
