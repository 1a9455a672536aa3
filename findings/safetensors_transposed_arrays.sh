#!/usr/bin/env bash
# safetensors 0.8.0: `safetensors.numpy.save` and `save_file` write a transposed array's memory as it lies,
# under the transposed shape. The file is valid and loads without an error, but the values are in the wrong
# places. 0.7.0 wrote them correctly. A weight transposed from Flax's [in, out] to PyTorch's [out, in] is such
# an array. The documentation of 0.8.0 doesn't ask for contiguous arrays; issue 825 of safetensors reports it.
#
# So `save_safetensors` in `flaxformer_mt/interop/weights.py` makes every array contiguous first.
# Exit status 0 while this lasts.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for version in 0.7.0 0.8.0; do
    python3 -m venv "$folder/$version"
    "$folder/$version/bin/python" -m pip install --quiet --disable-pip-version-check \
        "safetensors==$version" numpy==2.4.6
done

cat >"$folder/write.py" <<'PYTHON'
import sys

import numpy as np
from safetensors.numpy import save_file

kernel = np.arange(6, dtype=np.float32).reshape(2, 3)  # [in, out]
save_file(
    {"transposed": kernel.T, "fortran": np.asfortranarray(kernel.T.copy()), "copied": kernel.T.copy()},
    sys.argv[1],
)
PYTHON
cat >"$folder/read.py" <<'PYTHON'
import importlib.metadata
import sys

import numpy as np
from safetensors.numpy import load_file

print("Python", sys.version.split()[0], *(
    f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "safetensors")
))
expected = np.arange(6, dtype=np.float32).reshape(2, 3).T
print("saved:", expected.tolist())
right = {}
for version in ("0.7.0", "0.8.0"):
    arrays = load_file(f"{sys.argv[1]}/{version}.safetensors")
    for name in ("copied", "transposed", "fortran"):
        right[version, name] = bool(np.array_equal(arrays[name], expected))
        print(f"written by {version}, {name}:", arrays[name].tolist(), "equal:", right[version, name])
wrong = sorted(key for key, equal in right.items() if not equal)
sys.exit(0 if wrong == [("0.8.0", "fortran"), ("0.8.0", "transposed")] else 1)
PYTHON

for version in 0.7.0 0.8.0; do
    "$folder/$version/bin/python" "$folder/write.py" "$folder/$version.safetensors"
done
# Both versions read the same wrong values: the file is wrong, not the reader.
for version in 0.7.0 0.8.0; do
    "$folder/$version/bin/python" "$folder/read.py" "$folder"
done
