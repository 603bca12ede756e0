"""Jobs are listed from columns in memory: removes the parts that only listings in SQL used."""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_INDEXES = (
    *("jobs_created", "jobs_project_created", "jobs_project_status", "jobs_project_type", "jobs_project_user"),
    *("jobs_project_resource_group", "jobs_project_workspace", "jobs_project_start", "jobs_project_end"),
    *("jobs_project_name", "jobs_project_updated", "jobs_sampled"),
)
_FUNCTIONS = ("meets", "texts", "label", "json", "fold")


def upgrade() -> None:
    """Drop the functions, the indexes of each filter, and the searched text."""
    for name in _INDEXES:
        op.drop_index(name)
    op.drop_column("jobs", "search")
    op.create_index("jobs_project_created", "jobs", ["project", "created_sort", "id"])
    if op.get_bind().dialect.name == "postgresql":
        for name in _FUNCTIONS:
            op.execute(f"DROP FUNCTION IF EXISTS jobmeter_{name}")
