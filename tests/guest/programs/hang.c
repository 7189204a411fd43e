/* SPDX-License-Identifier: Apache-2.0 */
/* hang.c - a helper that never comes to an end. */
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    puts("half an answer");
    fflush(stdout);
    for (;;)
        pause();
}
