/* likwid.h: for programs that include it for the marker macros. LIKWID's other functions are not here. */
#ifndef LIKWID_H
#define LIKWID_H

#include <likwid-marker.h>

#endif
