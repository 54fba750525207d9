/* Session numbers are compared as decimal text, by length and then by digits: Lua's numbers are doubles.
 * hb that isn't "<master> <number>" counts as missing. */
#include "server/lease/redis/scripts.h"

#define READ_SESSION(ours, newer)                                                                           \
	"local hb = redis.call('GET', KEYS[1])\n"                                                           \
	"local session = hb and string.match(hb, ' (%d+)$')\n"                                              \
	"if session and (#session > #" ours " or (#session == #" ours " and session > " ours ")) then\n" \
	"  return " newer "\n"                                                                                 \
	"end\n"

const char *const redis_scripts[SCRIPTS] = {
	/* The hash is this session's exactly while hb names this session; else both begin anew.  A task that is in
	 * the hash takes no second slot. */
	[SCRIPT_PREEMPT] = READ_SESSION("ARGV[2]", "string.rep('1', (#ARGV - 5) / 2)")
		"local held, slots = 0, tonumber(ARGV[4])\n"
		"if session ~= ARGV[2] then\n"
		"  redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'PX', ARGV[3])\n"
		"  redis.call('DEL', KEYS[2])\n"
		"else\n"
		"  held = redis.call('HLEN', KEYS[2])\n"
		"end\n"
		"local n = (#ARGV - 5) / 2\n"
		"if held + n <= slots then\n"
		"  redis.call('HSET', KEYS[2], unpack(ARGV, 6))\n"
		"  redis.call('PEXPIRE', KEYS[2], ARGV[5])\n"
		"  return string.rep('0', n)\n"
		"end\n"
		"local said = {}\n"
		"for i = 6, #ARGV, 2 do\n"
		"  if held < slots or redis.call('HEXISTS', KEYS[2], ARGV[i]) == 1 then\n"
		"    held = held + redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])\n"
		"    said[#said + 1] = '0'\n"
		"  else\n"
		"    said[#said + 1] = '2'\n"
		"  end\n"
		"end\n"
		"said = table.concat(said)\n"
		"if string.find(said, '0', 1, true) then\n"
		"  redis.call('PEXPIRE', KEYS[2], ARGV[5])\n"
		"end\n"
		"return said\n",
	[SCRIPT_OWN_FIELDS] = READ_SESSION("ARGV[1]", "1")
		"redis.call('HSET', KEYS[2], unpack(ARGV, 3))\n"
		"redis.call('PEXPIRE', KEYS[2], ARGV[2])\n"
		"return 0\n",
	[SCRIPT_RELEASE_OWNER] =
		"local owner = redis.call('GET', KEYS[1])\n"
		"local worker, attempt = string.match(owner or '', '^(.*) %d+ (%d+)$')\n"
		"return worker == ARGV[1] and attempt == ARGV[2] and redis.call('DEL', KEYS[1]) or 0\n",
	[SCRIPT_DISOWN] = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0\n",
	[SCRIPT_RELEASE_FIELDS] =
		"local tasks, gone = {}, {}\n"
		"for i = 1, #ARGV, 2 do\n"
		"  tasks[#tasks + 1] = ARGV[i]\n"
		"end\n"
		"local at = redis.call('HMGET', KEYS[1], unpack(tasks))\n"
		"for i = 1, #tasks do\n"
		"  if at[i] == ARGV[2 * i] then\n"
		"    gone[#gone + 1] = tasks[i]\n"
		"  end\n"
		"end\n"
		"return #gone > 0 and redis.call('HDEL', KEYS[1], unpack(gone)) or 0\n",
	/* 2: there was no hb. */
	[SCRIPT_BEAT] = READ_SESSION("ARGV[2]", "1")
		"redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'PX', ARGV[3])\n"
		"redis.call('DEL', KEYS[2])\n"
		"for i = 5, #ARGV, 2000 do\n"
		"  redis.call('HSET', KEYS[2], unpack(ARGV, i, math.min(i + 1999, #ARGV)))\n"
		"end\n"
		"if #ARGV > 4 then\n"
		"  redis.call('PEXPIRE', KEYS[2], ARGV[4])\n"
		"end\n"
		"return hb and 0 or 2\n",
	[SCRIPT_HB] =
		("local hb = redis.call('GET', KEYS[1])\n"
		 "return hb and { hb, redis.call('PTTL', KEYS[1]) }\n"),
	[SCRIPT_DROP_HASH] = "return redis.call('EXISTS', KEYS[1]) == 0 and redis.call('DEL', KEYS[2]) or 0\n",
};
