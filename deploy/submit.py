"""The program that `spark-submit` runs: it takes the arguments of the command `millpond`.

spark-submit --master spark://host:7077 deploy/submit.py run shop.py --pond s3://bucket/shop --standby
"""

from millpond.cli import main

main()
