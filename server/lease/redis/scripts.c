/* Session numbers are compared as decimal text, by length and then by digits: Lua's numbers are doubles.
 * hb that isn't "<master> <number>" counts as missing. */
#include "server/lease/redis/scripts.h"

#define READ_SESSION(ours)                                                                                  \
	"local hb = redis.call('GET', KEYS[1])\n"                                                           \
	"local session = hb and string.match(hb, ' (%d+)$')\n"                                              \
	"if session and (#session > #" ours " or (#session == #" ours " and session > " ours ")) then\n" \
	"  return 1\n"                                                                                      \
	"end\n"

const char *const redis_scripts[SCRIPTS] = {
	/* The hash is this session's exactly while hb names this session; else both begin anew. */
	[SCRIPT_PREEMPT] = READ_SESSION("ARGV[2]")
		"if session ~= ARGV[2] then\n"
		"  redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'PX', ARGV[3])\n"
		"  redis.call('DEL', KEYS[2])\n"
		"elseif redis.call('HLEN', KEYS[2]) >= tonumber(ARGV[4]) and\n"
		"    redis.call('HEXISTS', KEYS[2], ARGV[5]) == 0 then\n"
		"  return 2\n"
		"end\n"
		"redis.call('HSET', KEYS[2], ARGV[5], ARGV[6])\n"
		"redis.call('PEXPIRE', KEYS[2], ARGV[7])\n"
		"return 0\n",
	[SCRIPT_OWN_FIELD] = READ_SESSION("ARGV[1]")
		"redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])\n"
		"redis.call('PEXPIRE', KEYS[2], ARGV[4])\n"
		"return 0\n",
	[SCRIPT_RELEASE_OWNER] =
		"local owner = redis.call('GET', KEYS[1])\n"
		"if owner and string.match(owner, ' (%d+)$') == ARGV[1] then\n"
		"  return redis.call('DEL', KEYS[1])\n"
		"end\n"
		"return 0\n",
	[SCRIPT_RELEASE_FIELD] =
		"if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then\n"
		"  return redis.call('HDEL', KEYS[1], ARGV[1])\n"
		"end\n"
		"return 0\n",
	/* unpack puts its values on Lua's stack, which holds about 8,000. */
	[SCRIPT_BEAT] = READ_SESSION("ARGV[2]")
		"redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'PX', ARGV[3])\n"
		"redis.call('DEL', KEYS[2])\n"
		"for i = 5, #ARGV, 2000 do\n"
		"  redis.call('HSET', KEYS[2], unpack(ARGV, i, math.min(i + 1999, #ARGV)))\n"
		"end\n"
		"if #ARGV > 4 then\n"
		"  redis.call('PEXPIRE', KEYS[2], ARGV[4])\n"
		"end\n"
		"return 0\n",
	[SCRIPT_HB] =
		("local hb = redis.call('GET', KEYS[1])\n"
		 "return hb and { hb, redis.call('PTTL', KEYS[1]) }\n"),
};
