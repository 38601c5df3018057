#!@SH@
# What runs in the place of xpk, gcloud, pip and others: it records how it was called, answers, and does nothing.
#
# The record, fields that end with NUL: name, number of arguments, arguments, exported variables, an empty field.
name=${0##*/}
PATH=@PATH@
[ "$name" != date ] || exec date -d @@NOW@ "$@"
calls=/podwright/calls
if [ "$name" = absent-program ]; then # only without a sandbox, where this ends the script
  printf '%s' "$1" > "$calls/absent"
  kill -KILL 0
fi
set -C
number=100000
until true > "$calls/$number"; do
  number=$((number + 1))
  if [ "$number" -ge 100500 ]; then
    true > "$calls/full"
    exit 1
  fi
done 2> /dev/null
set +C
{
  printf '%s\0' "$name" "$#" "$@"
  cat "/proc/$$/environ"
  printf '\0'
} > "$calls/$number"
# Whoever writes to the stdin of this program may go on writing, where an argument says that it is read.
for word; do
  case $word in
    - | *=- | /dev/stdin | *=/dev/stdin)
      head -c 1000000 > /dev/null
      break
      ;;
  esac
done
case "$name $*" in
@ANSWERS@
  "git clone "*)
    for word; do :; done
    word=${word%/}
    word=${word##*/}
    mkdir -p "${word%.git}"
    ;;
  # What it would print is not known here: whoever meets this mark in a call knows that.
  *) [ ! -p /dev/stdout ] || printf '\002%s\003' "$name $*" ;;
esac
exit 0
