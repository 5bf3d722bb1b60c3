"""Random tables, queries and changes, compared at every epoch with engines that know nothing of ponds (law 1).

`kinds` has the types and their literals; `expressions`, `nested`, `relations`, `time_windows`, `recursion`, `lookups`
and `queries` write well typed SQL, `changes` and `edits` statements that change rows and the program; `chance` puts
`cases` together: tables, views, changes and what else happens; `engines` answer in batch, in their `dialect`; `play`
runs a case and compares, also with its `past`; `shrink` makes a failing one small, `divergences` lists what is known
to differ and why.
"""
