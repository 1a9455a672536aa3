"""The mesh, the one table of logical rules, and placing arrays on devices."""

from flaxformer_mt.parallel.mesh import (
    RULES as RULES,
    MeshError as MeshError,
    make_mesh as make_mesh,
    on_mesh as on_mesh,
)
from flaxformer_mt.parallel.placement import (
    batch_sharding as batch_sharding,
    place_batch as place_batch,
    shardings_of as shardings_of,
    without_names as without_names,
)
