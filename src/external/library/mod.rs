//! A kernel in a C library, through `include/lastbit.h`.
