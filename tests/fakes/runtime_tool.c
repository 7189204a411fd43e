/* runtime_tool.c - a runtime's tool as KEP-2857 has it, linked statically: it runs in a root of its
 * own. What it was called with it appends to /run/called.
 */
#include <stdio.h>
#include <string.h>

int main(int argc, char *argv[])
{
    FILE *called = fopen("/run/called", "a");

    if (!called)
        return 1;
    for (int i = 1; i < argc; i++)
        (void)fprintf(called, "%s%s", argv[i], i + 1 < argc ? " " : "\n");
    if (fclose(called) != 0)
        return 1;
    if (argc == 4 && strcmp(argv[2], "stats") == 0)
        return puts("{\"usage\":[{\"unit\":1,\"total\":4096,\"used\":96,\"available\":4000}]}") < 0;
    return argc == 6 && strcmp(argv[2], "resize") == 0 ? puts("{\"capacity_bytes\":4096}") < 0 : 2;
}
