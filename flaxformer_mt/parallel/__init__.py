"""The mesh, the table of logical rules, placing arrays on devices, and several processes."""

from flaxformer_mt.parallel.mesh import (
    MOST_PARTS as MOST_PARTS,
    MeshError as MeshError,
    batch_sharding as batch_sharding,
    batch_share as batch_share,
    local_mesh as local_mesh,
    make_mesh as make_mesh,
    on_mesh as on_mesh,
    place_batch as place_batch,
    place_whole as place_whole,
    rows_split as rows_split,
    shardings_of as shardings_of,
    spread_over_data as spread_over_data,
    whole_on as whole_on,
    without_names as without_names,
)
from flaxformer_mt.parallel.process_settings import (
    DeterminismError as DeterminismError,
    keep_freed_memory as keep_freed_memory,
    make_deterministic as make_deterministic,
    share_one_heap as share_one_heap,
)
from flaxformer_mt.parallel.processes import (
    ALONE as ALONE,
    Cluster as Cluster,
    ProcessError as ProcessError,
    Processes as Processes,
    joined as joined,
)
