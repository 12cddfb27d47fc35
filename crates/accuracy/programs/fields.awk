# Sums the lengths of words by their first letter.
# usage: awk -v times=N -f fields.awk
BEGIN {
    for (n = 0; n < 300; n++) line = line " " substr("abcdefghijklmnopqrstuvwxyz", n % 20 + 1, n % 6 + 1)
    for (t = 0; t < times; t++) {
        fields = split(line, word, " ")
        for (f = 1; f <= fields; f++) letters[substr(word[f], 1, 1)] = letters[substr(word[f], 1, 1)] "x"
        if (t % 50 == 0) delete letters
    }
}
