"""Layouts over several chips and what their collectives cost (Pope et al. 2022, section 3 and appendix A)."""
