"""The mesh, the table of logical rules, placing arrays on devices, and several processes."""
