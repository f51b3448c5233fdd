#!/bin/bash
# Runs an evaluation on all GPUs of a Slurm job, and goes on in another job when the time limit comes first:
#     sbatch --nodes=2 docs/examples/slurm.sh staicc --model org/name --out runs/name
# Submit it in the folder of the project. All hosts must see that folder, the model and the output folder.
#SBATCH --job-name=evaluator
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --signal=B:TERM@180 # three minutes before the time limit; a shard writes its scores each minute
set -euo pipefail

bin=$PWD/.venv/bin
port=${RAY_PORT:-6379}
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
export HEAD=$head ADDRESS=$head:$port PORT=$port BIN=$bin
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
RAY_AUTH_TOKEN=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')

# One Ray process a host, until this script ends them: the head on the first, the others join it.
# shellcheck disable=SC2016 # the hosts expand these variables
srun --kill-on-bad-exit=1 bash -c '
  if [ "$SLURM_PROCID" = 0 ]; then
    exec "$BIN/ray" start --head --port="$PORT" --include-dashboard=false --disable-usage-stats --block
  fi
  exec "$BIN/ray" start --address="$ADDRESS" --disable-usage-stats --block' &
hosts=$!
trap 'kill "$hosts" 2>/dev/null && wait "$hosts" || true' EXIT

count_hosts() { "$bin/ray" status --address="$ADDRESS" 2>/dev/null | grep -c '^ 1 node_' || true; }
until [ "$(count_hosts)" -ge "$SLURM_JOB_NUM_NODES" ]; do
  kill -0 "$hosts" || { echo "Ray has ended on a host before all were there." >&2; exit 1; }
  sleep 2
done

"$bin/evaluator" run "$@" --ray-address "$ADDRESS" --devices all &
command=$!
trap 'kill -TERM "$command"' TERM
status=0
wait "$command" || status=$?
if kill -0 "$command" 2>/dev/null; then # a signal ended the wait, and the command now writes its scores
  wait "$command" || status=$?
fi
if [ "$status" = 143 ]; then # stopped before its end: what is scored stays, and the next job does the rest
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
