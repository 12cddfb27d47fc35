/* What it does is known: the tests count it independently. */
#include <pthread.h>
#include <stdio.h>

enum { ROUNDS = 5000, STRIDE = 256, CELLS = 1000 };

static char cells[CELLS * STRIDE];

/* ROUNDS multiplications, each of which needs the one before. */
__attribute__((noinline)) static double multiply(double by) {
    double x = 1.0;
    for (int round = 0; round < ROUNDS; round++)
        __asm__ volatile("mulsd %1, %0" : "+x"(x) : "x"(by));
    return x;
}

/* A store of four bytes to each STRIDEth byte, CELLS times. */
__attribute__((noinline)) static void stride(void) {
    for (int cell = 0; cell < CELLS; cell++)
        __asm__ volatile("movl %1, %0" : "=m"(*(int *)(cells + cell * STRIDE)) : "r"(cell));
}

static void *second(void *nothing) {
    stride();
    return nothing;
}

int main(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, second, NULL) != 0)
        return 1;
    double x = multiply(1.0001);
    pthread_join(thread, NULL);
    printf("%.3f\n", x);
    return 7;
}
