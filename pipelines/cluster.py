"""Cluster the images of a table by embedding, and publish contact sheets for manual labelling.

python pipelines/cluster.py default --set table=DIR --set clusters=K --set out=DIR
ray job submit -- python pipelines/cluster.py default --set table=s3://… --set out=s3://…
"""

from biovl.concepts.cluster_config import RECIPES, ClusterConfig
from biovl.concepts.cluster_job import cluster
from biovl.runtime import command_line

if __name__ == "__main__":
    command_line.main(ClusterConfig, RECIPES, cluster, about=__doc__)
