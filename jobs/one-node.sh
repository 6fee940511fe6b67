#!/usr/bin/env bash
# One model on one node: two ranks (of a node with two sockets) share it. Stops before the time limit and puts itself
# into the queue again until every record is answered.
#
#   sbatch jobs/one-node.sh configs/llama-3.1-8b.ini PROMPTS.jsonl ANSWERS.jsonl
#
# Ask first, on the login node, whether it fits:
#   caravan plan --ranks 2 --node-memory 256G --config ... --input ... --output ...
#SBATCH --job-name=caravan
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

config=${1:?configuration file, prompts and answers}
prompts=${2:?prompts and answers}
answers=${3:?answers}

# The program and its MPI where a module has them:
# module load caravan
program=caravan # or the path of a build

# Since Slurm 22.05 srun does not take this over from sbatch.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
code=0
# Your site's MPI may have another --mpi: `srun --mpi=list` shows them.
srun --mpi=pmix --cpu-bind=cores --kill-on-bad-exit=1 "$program" run --config "$config" --input "$prompts" \
  --output "$answers" || code=$?

# 75: stopped by the signal, 300 seconds before the end. What is finished is kept.
if [ "$code" -eq 75 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 20 ]; then
  scontrol requeue "$SLURM_JOB_ID"
  sleep 60 # until Slurm ends this script
fi
exit "$code"
