/* Runs a fuzz target over its corpus as an ordinary test: corpus_main DIR…  Each file goes in
 * as it is, then every prefix of it (of the first 4 KiB), then with each bit of its first 512
 * bytes flipped alone: deterministic, and enough to walk the error paths around a good input. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX (1 << 20)
#define PREFIX_MAX 4096
#define FLIP_MAX 512

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* In memory of exactly this size, so that a sanitizer sees a read beyond it. */
static void run_copy(const uint8_t *data, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);
	if (!copy)
		abort();
	memcpy(copy, data, len);
	LLVMFuzzerTestOneInput(copy, len);
	free(copy);
}

static void run_file(const char *path)
{
	FILE *f = fopen(path, "re");
	uint8_t *data = malloc(FILE_MAX);
	if (!f || !data) {
		fprintf(stderr, "can't read %s\n", path);
		exit(1);
	}
	size_t len = fread(data, 1, FILE_MAX, f);
	fclose(f);
	run_copy(data, len);
	for (size_t n = 0; n < len && n < PREFIX_MAX; n++)
		run_copy(data, n);
	for (size_t bit = 0; bit < 8 * len && bit < 8 * FLIP_MAX; bit++) {
		data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		run_copy(data, len);
		data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	free(data);
}

int main(int argc, char **argv)
{
	unsigned files = 0;
	for (int i = 1; i < argc; i++) {
		DIR *dir = opendir(argv[i]);
		if (!dir) {
			fprintf(stderr, "can't open %s\n", argv[i]);
			return 1;
		}
		for (struct dirent *e; (e = readdir(dir));) {
			char path[4096];
			if (e->d_name[0] == '.')
				continue;
			snprintf(path, sizeof(path), "%s/%s", argv[i], e->d_name);
			run_file(path);
			files++;
		}
		closedir(dir);
	}
	printf("%u files\n", files);
	return files ? 0 : 1;
}
