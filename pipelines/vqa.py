"""Let a model learn to answer medical questions, and publish what it answers and how well.

python pipelines/vqa.py meter --set model=DIR --set data=VQA_RAD --set out=DIR
ray job submit -- python pipelines/vqa.py slake --set model=s3://… --set data=s3://… --set out=s3://…
"""

from biovl import drivers, recipes
from biovl.jobs.vqa import VqaConfig, vqa

if __name__ == "__main__":
    drivers.main(VqaConfig, recipes.VQA, vqa, about=__doc__)
