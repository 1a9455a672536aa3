"""The mesh, the table of logical rules, placing arrays on devices, and several processes."""

from flaxformer_mt.parallel.process_settings import leave_out_absent_tpu

# Here, because whatever uses devices imports this room, in programs and in Ray's workers, too.
leave_out_absent_tpu()
