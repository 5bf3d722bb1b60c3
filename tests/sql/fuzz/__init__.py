"""Random tables, queries and changes, compared at every epoch with engines that know nothing of ponds (law 1).

`kinds` has the types and their literals, `expressions` and `queries` write well typed SQL, `cases` puts tables,
views and changes together, `play` runs a case and compares, `shrink` makes a failing one small, `divergences`
lists what is known to differ and why.
"""
