"""The step as compiled programs: sampling and its features, buckets, which program runs which rows (`dispatch`), the compiled set,
and the folder in which it is kept."""
