-- nothing to lift: the list itself is read
select a, list({'b': b}) from t group by a;
project #0, #1
  aggregate list(struct_pack(#1)) by #0
    get t (1, 2)
