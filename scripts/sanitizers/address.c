/* In the program, since some tests start it with an empty environment. */
const char *__asan_default_options(void) { return OPTIONS; }
