/* The functions of glibc 2.38 that Slurm's packages call, for a host whose glibc is older. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

long __isoc23_strtol(const char *s, char **e, int b) { return strtol(s, e, b); }
unsigned long __isoc23_strtoul(const char *s, char **e, int b) { return strtoul(s, e, b); }
long long __isoc23_strtoll(const char *s, char **e, int b) { return strtoll(s, e, b); }
unsigned long long __isoc23_strtoull(const char *s, char **e, int b) { return strtoull(s, e, b); }

int __isoc23_sscanf(const char *s, const char *f, ...)
{
	va_list a;
	va_start(a, f);
	int r = vsscanf(s, f, a);
	va_end(a);
	return r;
}

int __isoc23_fscanf(FILE *s, const char *f, ...)
{
	va_list a;
	va_start(a, f);
	int r = vfscanf(s, f, a);
	va_end(a);
	return r;
}

size_t strlcpy(char *d, const char *s, size_t n)
{
	size_t l = strlen(s);
	if (n) {
		size_t k = l < n - 1 ? l : n - 1;
		memcpy(d, s, k);
		d[k] = 0;
	}
	return l;
}

size_t strlcat(char *d, const char *s, size_t n)
{
	size_t l = strnlen(d, n);
	return l == n ? n + strlen(s) : l + strlcpy(d + l, s, n - l);
}
