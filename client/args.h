/* The command line before the settings table sees it: which command, and the short flags. */
#ifndef REINS_CLIENT_ARGS_H
#define REINS_CLIENT_ARGS_H

#include "client/cli.h"

struct args {
	char **argv; /* argv[0] and NULL at the end as usual; owned: args_done */
	int argc;
	int n_before; /* arguments that are no flags and stand before `--` */
};

/* Index in argv of the command's name: the first that is neither a flag nor a flag's value by the table
 * of connection flags. argc: none. */
int args_command(int argc, char **argv);
/* For this command, whose name stands at `at`: the connection flags from before it are moved behind it, -o and -f
 * are written out, and REINS_SERVER and its like are added as flags where no flag says otherwise. */
void args_make(int argc, char **argv, int at, const struct settings_program *prog, struct args *ret);
void args_done(struct args *a);
/* The name nearest to what was typed, NULL if none is near. */
const char *args_nearest(const char *typed, const struct command *const *commands, size_t n);

#endif
