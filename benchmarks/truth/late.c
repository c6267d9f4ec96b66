/* A delay outside of Python: as a program, a compiler that is slow once; as a library, a slow end of a process.
 *
 *   cc late.c -o g++ -DREAL='"/usr/bin/g++"'     cc -shared -fPIC late.c -o late.so
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

static unsigned length;
static char path[4096];
static pid_t owner;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

void prepare(unsigned microseconds, const char *file) {
    length = microseconds;
    owner = getpid();
    snprintf(path, sizeof path, "%s", file);
}

void late(void) {
    double begin = now();
    while (now() < begin + length / 1e6)
        usleep((begin + length / 1e6 - now()) * 1e6 + 1);
    FILE *file = fopen(path, "w");
    if (file) {
        fprintf(file, "{\"begin\": %.6f, \"end\": %.6f, \"pid\": %d}\n", begin, now(), (int)getpid());
        fclose(file);
    }
}

#ifndef REAL
/* After main, after Python's own end, after atexit. */
__attribute__((destructor)) static void at_exit(void) {
    if (length && getpid() == owner)
        late();
}
#else
int main(int argc, char **argv) {
    const char *out = getenv("COLDSTART_TRUTH_OUT"), *microseconds = getenv("COLDSTART_TRUTH_COMPILER");
    int compiles = 0;
    for (int i = 1; i < argc; i++)
        compiles |= !strcmp(argv[i], "-o"); /* not a question for its version */
    if (out && microseconds && compiles) {
        char claim[4096];
        snprintf(claim, sizeof claim, "%s/compiler.claim", out);
        int first = open(claim, O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (first >= 0) {
            snprintf(claim, sizeof claim, "%s/compiler.truth", out);
            prepare(atoi(microseconds), claim);
            late();
        }
    }
    argv[0] = REAL; /* where it looks for its other programs */
    execv(REAL, argv);
    perror(REAL);
    return 127;
}
#endif
