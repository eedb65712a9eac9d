#!/usr/bin/env bash
# Raftline on Kubernetes, one command at a time.
#
#   ./deploy.sh deploy ENV      make a cluster on AWS EKS (eksctl) and put Raftline on it
#   ./deploy.sh raftline ENV    put Raftline on the cluster that kubectl points to
#   ./deploy.sh url ENV         print the address of the load balancer
#   ./deploy.sh benchmark ENV   run `raftline bench` against it from inside the cluster
#
# ENV is a name such as dev or prod; its Kubernetes namespace is raftline-ENV, and values come from
# kubernetes/ENV.yaml if there is one. --dry-run shows the commands and runs nothing. The load balancer
# is for the cluster's own network: there is no authentication yet.
# Environment: AWS_REGION (eu-central-1), NODES (3), INSTANCE (m7g.large: ARM64), RAFTLINE_IMAGE
# (repository:tag that the cluster can pull, built for its machines).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

usage() { sed -n '3,14s/^# \{0,1\}//p' "$0"; exit "${1:-2}"; }

dry_run=false
words=()
for word in "$@"; do
  case $word in
    --dry-run) dry_run=true ;;
    -h | --help) usage 0 ;;
    -*) echo "deploy.sh: unknown option $word" >&2; usage ;;
    *) words+=("$word") ;;
  esac
done
[ "${#words[@]}" -eq 2 ] || usage
verb=${words[0]} environment=${words[1]}
[[ $environment =~ ^[a-z][a-z0-9-]{0,20}$ ]] || {
  echo "deploy.sh: '$environment' is no name for an environment (a-z, 0-9, -)" >&2; exit 2; }

namespace=raftline-$environment
nodes=${NODES:-3}
values=$here/kubernetes/$environment.yaml
image=${RAFTLINE_IMAGE:-}

run() {
  if $dry_run; then printf '%q ' "$@"; echo; else "$@"; fi
}

need() {
  $dry_run && return
  for tool in "$@"; do
    command -v "$tool" >/dev/null || {
      echo "deploy.sh: '$tool' is not installed; --dry-run shows what would be run" >&2; exit 6; }
  done
}

make_cluster() {
  need eksctl aws kubectl helm
  run eksctl create cluster --name "$namespace" --region "${AWS_REGION:-eu-central-1}" \
    --nodes "$nodes" --node-type "${INSTANCE:-m7g.large}" --with-oidc
  run eksctl create addon --name aws-ebs-csi-driver --cluster "$namespace" \
    --region "${AWS_REGION:-eu-central-1}"
  run kubectl apply -f "$here/kubernetes/eks/gp3.yaml"  # EKS has no default class of its own
}

install_raftline() {
  need helm kubectl
  # What comes later holds: the environment's own file over ours, what was asked for here over both.
  local options=(--namespace "$namespace" --create-namespace
    --values "$here/kubernetes/helm/internal-load-balancer.yaml")
  [ -f "$values" ] && options+=(--values "$values")
  [ -n "${NODES:-}" ] && options+=(--set "replicaCount=$nodes")
  if [ -z "$image" ]; then
    echo "deploy.sh: RAFTLINE_IMAGE is not set: the image of the values has to be there already" >&2
  elif [[ ${image##*/} == *:* ]]; then
    options+=(--set "image.repository=${image%:*}" --set "image.tag=${image##*:}")
  else
    options+=(--set "image.repository=$image")
  fi
  run helm upgrade --install raftline "$here/kubernetes/helm/raftline" "${options[@]}"
  run kubectl rollout status statefulset/raftline --namespace "$namespace" --timeout 10m
}

print_url() {
  need kubectl
  if $dry_run; then
    run kubectl get service raftline --namespace "$namespace" -o jsonpath='{.status.loadBalancer}'
    return
  fi
  local host
  host=$(kubectl get service raftline --namespace "$namespace" \
    -o jsonpath='{.status.loadBalancer.ingress[0].hostname}{.status.loadBalancer.ingress[0].ip}')
  [ -n "$host" ] || { echo "deploy.sh: the load balancer has no address yet; try again" >&2; exit 7; }
  echo "http://$host:8080"
}

benchmark() {
  need kubectl
  run kubectl exec --namespace "$namespace" raftline-0 -- \
    raftline bench --server http://127.0.0.1:8080
}

case $verb in
  deploy) make_cluster; install_raftline; print_url ;;
  raftline | goqueue) install_raftline ;;
  url) print_url ;;
  benchmark) benchmark ;;
  *) echo "deploy.sh: unknown command $verb" >&2; usage ;;
esac
