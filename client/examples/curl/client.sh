#!/bin/sh
# Submits, waits, watches, reads logs, lists and cancels, with curl and JSON; python3 takes the JSON apart.
#
#   client.sh submit PROGRAM [ARGUMENT...]   prints the task's id
#   client.sh wait ID                        prints the state; exit code 0 if it is COMPLETED, else 1
#   client.sh watch PROGRAM [ARGUMENT...]    submits, and prints what happens to the task until it has ended; exit code as of wait
#   client.sh logs ID                        what the program prints, until it has ended
#   client.sh list [QUEUE]                   id, state and name, the newest first
#   client.sh cancel ID
#
# REINS_SERVER   127.0.0.1:7346 (the default), or https://HOST:PORT for TLS
# REINS_TOKEN    sent with each call; the server may ask for one
# REINS_TLS_CA   the authority that signed the server's certificate; REINS_TLS_CERT, REINS_TLS_KEY: a certificate of our own
# REINS_QUEUE    the queue that submit puts tasks into
#
# Each method of the contract is called like this; what a request may hold stands in proto/reins/v1:
#   curl -H 'content-type: application/json' -d '{"taskId": "ID"}' http://127.0.0.1:7346/reins.v1.TaskService/GetTask
set -eu
umask 077
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

server=${REINS_SERVER:-127.0.0.1:7346}
server=${server%/}
case $server in
http://* | https://*) ;;
*) server=http://$server ;;
esac

# post METHOD TYPE OPTION...: sends $scratch/request and writes the answer.
post() {
	method=$1 type=$2
	shift 2
	if [ -n "${REINS_TLS_CA-}" ]; then set -- "$@" --cacert "$REINS_TLS_CA"; fi
	if [ -n "${REINS_TLS_CERT-}" ]; then set -- "$@" --cert "$REINS_TLS_CERT" --key "$REINS_TLS_KEY"; fi
	if [ -n "${REINS_TOKEN-}" ]; then
		# By a file: the arguments of a program can be read by anybody on the machine.
		printf 'authorization: Bearer %s\n' "$REINS_TOKEN" >"$scratch/token"
		set -- "$@" -H "@$scratch/token"
	fi
	${run-} curl -sS -H "content-type: application/$type" --data-binary "@$scratch/request" "$@" "$server/reins.v1.TaskService/$method"
}

# call METHOD OPTION...: the answer is in $scratch/answer.
call() {
	method=$1
	shift
	: >"$scratch/answer"
	if ! post "$method" json --fail-with-body "$@" -o "$scratch/answer" 2>"$scratch/said"; then
		# {"code": "not_found", "message": "…"}; the message names the field, if one was at fault.
		json 'error = json.load(sys.stdin); print(error["code"] + ": " + error.get("message", ""))' <"$scratch/answer" >&2 2>/dev/null ||
			cat "$scratch/said" >&2
		exit 1
	fi
}

# json CODE ARGUMENT...: what Python prints; the arguments are in a.
json() {
	python3 -c "import base64, json, os, sys, uuid; a = sys.argv[2:]
$1" "$@"
}

# submit PROGRAM [ARGUMENT...]: the task's id is in $scratch/id.
submit() {
	# The key makes it safe to send this again when the answer was lost.
	json 'print(json.dumps({"spec": {"command": a, "queue": os.environ.get("REINS_QUEUE", "")}, "idempotencyKey": str(uuid.uuid4())}))' \
		"$@" >"$scratch/request"
	call SubmitTask --retry 3
	json 'print(json.load(sys.stdin)["task"]["id"])' <"$scratch/answer" >"$scratch/id"
}

# watch FILTER: what happens to the tasks that match, from the cursor in $scratch/cursor on, if there is one, and keeps it there: who
# goes on from it misses nothing. Ends with the first SYNC, if there was no cursor; with 0 or 1 when a task has ended, COMPLETED or not;
# with 3 when the server has gone, or we were too slow for it; with 2 after an error.
watch() {
	json 'body = json.dumps({"filter": json.loads(a[0]), "cursor": a[1]}).encode()
sys.stdout.buffer.write(b"\0" + len(body).to_bytes(4, "big") + body)' "$1" "$(cat "$scratch/cursor" 2>/dev/null)" >"$scratch/request"
	rm -f "$scratch/events"
	mkfifo "$scratch/events"
	{
		run='exec' # so that it is curl that is ended below
		post WatchTasks connect+json --fail --no-buffer >"$scratch/events"
	} &
	code=0
	json '
cursor = a[0]
begun = os.path.exists(cursor)
while head := sys.stdin.buffer.read(5):
    message = json.loads(sys.stdin.buffer.read(int.from_bytes(head[1:], "big")))
    if head[0] & 2:
        error = message.get("error", {"code": "unavailable"})
        if error["code"] not in ("unavailable", "resource_exhausted"):
            print(error["code"] + ": " + error.get("message", ""), file=sys.stderr)
            sys.exit(2)
        break
    open(cursor, "w").write(message["cursor"])
    if not begun:
        sys.exit(0)
    if message["kind"] != "SYNC":
        print(message["kind"], message["state"], flush=True)
    if message.get("state") in ("COMPLETED", "FAILED", "CANCELLED"):
        sys.exit(message["state"] != "COMPLETED")
sys.exit(3 if begun else "the server can not be reached")' "$scratch/cursor" <"$scratch/events" || code=$?
	kill $! 2>/dev/null || true
	return $code
}

usage() {
	echo "usage: client.sh submit PROGRAM... | wait ID | watch PROGRAM... | logs ID | list [QUEUE] | cancel ID" >&2
	exit 64
}

[ $# -gt 0 ] || usage
verb=$1
shift
case $verb:$# in
submit:0 | watch:0)
	usage
	;;
submit:*)
	submit "$@"
	cat "$scratch/id"
	;;
watch:*)
	watch '{}' # so nothing of the task is missed, however soon it ends
	submit "$@"
	while :; do
		code=0
		watch "{\"taskIds\": [\"$(cat "$scratch/id")\"]}" || code=$?
		if [ $code -ne 3 ]; then exit $code; fi
		sleep 0.5
	done
	;;
wait:1)
	# Each call waits half a minute, so that a server which is restarted costs little.
	json 'print(json.dumps({"taskId": a[0], "wait": "30s"}))' "$1" >"$scratch/request"
	while :; do
		call GetTask --max-time 60 --retry 3
		state=$(json 'print(json.load(sys.stdin)["state"])' <"$scratch/answer")
		case $state in
		COMPLETED) echo "$state" && exit 0 ;;
		FAILED | CANCELLED) echo "$state" && exit 1 ;;
		esac
	done
	;;
logs:1)
	# A stream: five bytes before each message, flags and its length. The last one has flag 2, and says what went wrong.
	json 'body = json.dumps({"taskId": a[0], "follow": True}).encode()
sys.stdout.buffer.write(b"\0" + len(body).to_bytes(4, "big") + body)' "$1" >"$scratch/request"
	post ReadLogs connect+json --fail --no-buffer | json '
while head := sys.stdin.buffer.read(5):
    message = json.loads(sys.stdin.buffer.read(int.from_bytes(head[1:], "big")))
    if head[0] & 2:
        error = message.get("error")
        sys.exit(error and error["code"] + ": " + error.get("message", ""))
    sys.stdout.buffer.write(base64.b64decode(message.get("data", "")))
    sys.stdout.buffer.flush()
sys.exit("the stream was cut off")'
	;;
list:0 | list:1)
	token=
	while :; do
		json 'print(json.dumps({"filter": {"queue": a[0]}, "pageSize": 100, "pageToken": a[1]}))' "${1-}" "$token" >"$scratch/request"
		call ListTasks
		json 'for t in json.load(sys.stdin).get("tasks", []): print(t["id"], t["state"], t["spec"].get("name", ""))' <"$scratch/answer"
		token=$(json 'print(json.load(sys.stdin).get("nextPageToken", ""))' <"$scratch/answer")
		[ -n "$token" ] || break
	done
	;;
cancel:1)
	json 'print(json.dumps({"taskId": a[0], "reason": "by client.sh"}))' "$1" >"$scratch/request"
	call CancelTask
	json 'print(json.load(sys.stdin)["state"])' <"$scratch/answer"
	;;
*)
	usage
	;;
esac
