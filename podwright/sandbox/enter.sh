# Process 1 of the sandbox: builds a root of its own, gives up every capability, runs the script and prints what came of it.
#
#   bash enter.sh STAGE SCRIPT HOME USER SECONDS PROCESSES MASKED
#
# It runs in new user, mount, network, process, IPC and UTS namespaces, with an empty environment. STAGE is a folder of the caller with
# bin/ (stand-ins), recipe/ (SCRIPT and the files beside it) and root/ (empty), random (bytes that /dev/urandom
# has) and environment (NAME=VALUE with a NUL after each: the variables of the script). SECONDS is a whole number. MASKED is a folder that is covered where the sandbox would see it.
# stdout, fields that end with NUL: `started`; `ended`, exit code, why it was stopped, last output; then each record of
# standin.sh. Output and records are in base64. Whatever fails before `started` is said on stderr, and the script has not been run.
set -euo pipefail
stage=$1 script=$2 home=$3 user=$4 seconds=$5 processes=$6 masked=$7
root=$stage/root

bind() { # the same path in the new root; a link as the link that it is
  if [[ -L $1 ]]; then
    mkdir -p "$root${1%/*}"
    ln -s "$(readlink "$1")" "$root$1"
  elif [[ -d $1 ]]; then
    mkdir -p "$root$1"
    mount --rbind "$1" "$root$1"
  elif [[ -e $1 ]]; then
    mkdir -p "$root${1%/*}"
    : > "$root$1"
    mount --bind "$1" "$root$1"
  fi
}

# Programs and libraries, nothing else of this machine: no home, no /run, no /var, no devices; of /etc what programs need to be found and loaded.
mount -t tmpfs -o size=4m,mode=755 podwright "$root"
for path in /usr /bin /sbin /lib /lib32 /lib64 /libx32 /nix/store /gnu/store /etc/alternatives /etc/ld.so.cache; do
  bind "$path"
done
mkdir -p "$root"/{etc,proc,dev,podwright}
printf '%s:x:1000:1000::%s:/bin/bash\n' "$user" "$home" > "$root/etc/passwd"
printf '%s:x:1000:\n' "$user" > "$root/etc/group"
echo 'passwd: files' > "$root/etc/nsswitch.conf"
cp -R "$stage/bin" "$root/podwright/"

# Read-only with everything mounted below it. Flags that the parent namespace has set must be repeated.
while read -r _ _ _ _ point flags _; do
  printf -v point '%b' "$point" # a space stands there as \040
  if [[ $point == "$root"/* ]]; then
    options=remount,bind,ro,nosuid,nodev
    [[ $flags != *noexec* ]] || options+=,noexec
    mount -o "$options" "$point"
  fi
done < /proc/self/mountinfo
if [[ -n $masked && -d $root$masked ]]; then mount -t tmpfs -o size=4k,mode=755,ro podwright "$root$masked"; fi

for device in null zero full; do bind "/dev/$device"; done
for device in random urandom; do cp "$stage/random" "$root/dev/$device"; done # the same at every evaluation
ln -s /proc/self/fd "$root/dev/fd"
ln -s /proc/self/fd/0 "$root/dev/stdin"
ln -s /proc/self/fd/1 "$root/dev/stdout"
ln -s /proc/self/fd/2 "$root/dev/stderr"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
hostname podwright-@VARIANT@ 2> /dev/null || true # where it is not installed, the name of this machine stays
# One more user namespace, in which the script has an ordinary user id; none that the script makes.
echo 1 > "$root/proc/sys/user/max_user_namespaces"

for path in /tmp /podwright/calls /podwright/run "$home"; do # the home last: it may lie below /tmp
  mkdir -p "$root$path"
  mount -t tmpfs -o size=64m,nr_inodes=4096,nosuid,nodev,mode=755 podwright "$root$path"
done
cp -R "$stage/recipe" "$root$home/recipe"
# The environment that public recipes name. Some test for it before they source it.
mkdir -p "$root$home/.local/bin/venv/bin"
: > "$root$home/.local/bin/venv/bin/activate"
cp "$stage/environment" "$root/podwright/run/"
mount -o remount,ro podwright "$root"

cd "$root"
pivot_root . .
umount -l .
cd /

# shellcheck disable=SC2016 # expanded by the bash that it is the program of
# setfcap: without it no user namespace below this one may map its only user id.
exec setpriv --bounding-set=-all,+setfcap --inh-caps=-all --no-new-privs bash -c '
seconds=$1 processes=$2 folder=$3 script=$4 log=/podwright/run/log
for ((turn = 0; turn < @VARIANT@; turn++)); do (:); done # other process ids
mkfifo /podwright/run/tick
exec 9<> /podwright/run/tick
stopped="" page=4096 most=$((512 << 20))
printf "started\0"

# Bytes and processes of all but this one
measure() {
  local file resident _
  total=0 others=0
  for file in /proc/[0-9]*/statm; do
    [[ $file != /proc/1/statm ]] || continue
    if read -r _ resident _ < "$file"; then total=$((total + resident * page)) others=$((others + 1)); fi
  done 2> /dev/null
}

(
  cd "$folder" || exit 1
  exec 9>&-
  # a limit that is lower here already stays
  for limit in "-c 0" "-f 4096" "-n 256" "-v 1048576" "-t $seconds" "-u $processes"; do ulimit $limit; done 2> /dev/null
  unset OLDPWD
  ((@VARIANT@ == 0)) || script=./$script
  while IFS= read -r -d "" variable; do export "$variable"; done < /podwright/run/environment
  rm /podwright/run/environment
  exec unshare --user --map-user=1000 --map-group=1000 bash -- "$script" < /dev/null >> "$log" 2>&1
) &
child=$!
SECONDS=0
while [[ -d /proc/$child && -z $stopped ]]; do
  read -r -t 0.02 -u 9
  measure
  if ((SECONDS >= seconds)); then stopped=time
  elif ((total > most)); then stopped=memory
  elif [[ -e /podwright/calls/full ]]; then stopped=calls; fi
done
# What the script left in the background may end by itself, but not for long.
for ((turn = 0; turn < 25; turn++)); do
  [[ -z $stopped ]] || break
  measure
  ((others > 0)) || break
  read -r -t 0.02 -u 9
done
[[ -n $stopped ]] || ((others == 0)) || stopped=background
kill -KILL -1 2> /dev/null
wait "$child" 2> /dev/null
code=$?
printf "ended\0%s\0%s\0" "$code" "$stopped"
tail -c 4000 "$log" | base64 -w0
printf "\0"
shopt -s nullglob
for file in /podwright/calls/1*; do
  base64 -w0 "$file"
  printf "\0"
done
' podwright "$seconds" "$processes" "$home/recipe" "$script"
