xpk workload create --cluster=a-cluster --project=a-project --zone=us-central1 --workload=fork-64dev-test \
  --device-type=tpu7x-64 --num-slices=1 --docker-image=gcr.io/a-project/runner \
  --command="cd /app && gsutil cp gs://a-bucket/fork/train.sh /tmp/train.sh && bash /tmp/train.sh"
