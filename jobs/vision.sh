#!/usr/bin/env bash
# Llama 3.2 Vision over prompts with images. Stops before the time limit and puts itself into the queue again until every
# record is answered.
#
#   sbatch jobs/vision.sh configs/llama-3.2-11b-vision.ini PROMPTS.jsonl ANSWERS.jsonl FOLDER_OF_IMAGES
#   sbatch --nodes=4 jobs/vision.sh configs/llama-3.2-90b-vision.ini PROMPTS.jsonl ANSWERS.jsonl FOLDER_OF_IMAGES
#
# Ask first, on the login node, whether it fits and every image is good (11B: 2 ranks, 90B: 8 on 4 nodes):
#   caravan plan --ranks 2 --node-memory 256G --config ... --input ... --output ... --media-root ...
#SBATCH --job-name=caravan-vision
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=16
#SBATCH --mem=0
#SBATCH --time=04:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
# Site-specific, as are the numbers above:
##SBATCH --account=PROJECT
##SBATCH --partition=cpu
set -euo pipefail

config=${1:?configuration file, prompts, answers and folder of the images}
prompts=${2:?prompts, answers and folder of the images}
answers=${3:?answers and folder of the images}
# Images outside of it are not read. It lies on the parallel file system: the first rank reads it.
images=${4:?folder of the images}

# The program and its MPI where a module has them:
# module load caravan
program=caravan # or the path of a build

# Since Slurm 22.05 srun does not take this over from sbatch.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
code=0
# Your site's MPI may have another --mpi: `srun --mpi=list` shows them.
srun --mpi=pmix --cpu-bind=cores --kill-on-bad-exit=1 "$program" run --config "$config" --input "$prompts" \
  --output "$answers" --media-root "$images" || code=$?

# 75: stopped by the signal, 300 seconds before the end. What is finished is kept.
if [ "$code" -eq 75 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 20 ]; then
  scontrol requeue "$SLURM_JOB_ID"
  sleep 60 # until Slurm ends this script
fi
exit "$code"
