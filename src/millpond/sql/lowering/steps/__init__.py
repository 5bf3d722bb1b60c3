"""Steps that several rules add: joins, conditions, orders, groups and windows."""
