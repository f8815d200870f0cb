"""What measured times say of a machine: a handful of physical parameters, their errors, and how far predictions can be trusted."""
