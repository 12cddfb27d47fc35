"""Inputs of the natural programs, the same on every machine: sequences, alignments, tables, models, a netlist.

usage: inputs.py FOLDER
"""

import math
import os
import random
import struct
import sys

AMINO = "ARNDCQEGHILKMFPSTWYV"
DNA = "ACGT"


def mutate(sequence, alphabet, rate, rng):
    return "".join(rng.choice(alphabet) if rng.random() < rate else letter for letter in sequence)


def family(members, length, alphabet, rng):
    """Sequences of one family: mutations along a random binary tree, without gaps."""
    living = ["".join(rng.choice(alphabet) for _ in range(length))]
    while len(living) < members:
        parent = living.pop(0)
        living += [mutate(parent, alphabet, 0.08, rng) for _ in range(2)]
    return living[:members]


def fasta(name, sequences):
    with open(name, "w") as out:
        for number, sequence in enumerate(sequences):
            out.write(f">s{number}\n{sequence}\n")


def phylip(name, sequences):
    with open(name, "w") as out:
        out.write(f" {len(sequences)} {len(sequences[0])}\n")
        for number, sequence in enumerate(sequences):
            out.write(f"s{number:<9} {sequence}\n")


def gaps(sequences, rng):
    """Each without some stretches, so that an aligner has something to do."""
    out = []
    for sequence in sequences:
        for _ in range(4):
            start = rng.randrange(len(sequence) - 12)
            sequence = sequence[:start] + sequence[start + rng.randrange(1, 10):]
        out.append(sequence)
    return out


def nexus(name, sequences):
    with open(name, "w") as out:
        out.write("#NEXUS\nbegin data;\n")
        out.write(f"dimensions ntax={len(sequences)} nchar={len(sequences[0])};\n")
        out.write("format datatype=dna;\nmatrix\n")
        for number, sequence in enumerate(sequences):
            out.write(f"s{number} {sequence}\n")
        out.write(";\nend;\nbegin mrbayes;\nset autoclose=yes nowarn=yes;\nlset nst=6 rates=gamma;\n")
        out.write("mcmcp ngen=100000000 nruns=1 nchains=2 samplefreq=1000 printfreq=100000;\nmcmc;\nend;\n")


def svm(name, rows, columns, rng):
    with open(name, "w") as out:
        for _ in range(rows):
            values = [rng.gauss(0, 1) for _ in range(columns)]
            label = 1 if sum(v * v for v in values[:5]) > 5 + rng.gauss(0, 2) else -1
            out.write(f"{label:+d} " + " ".join(f"{i + 1}:{v:.5f}" for i, v in enumerate(values)) + "\n")


def linear_program(name, constraints, variables, rng):
    """A dense random linear program in CPLEX format that has a solution."""
    with open(name, "w") as out:
        out.write("Maximize\n obj:")
        for j in range(variables):
            out.write(f" + {rng.uniform(1, 2):.4f} x{j}\n")
        out.write("Subject To\n")
        for i in range(constraints):
            row = (f" + {rng.uniform(0.1, 1):.4f} x{j}\n" for j in range(variables) if rng.random() < 0.3)
            out.write(f" c{i}:" + "".join(row) + f" <= {rng.uniform(50, 100):.4f}\n")
        out.write("End\n")


def points(name, count, dimensions, rng):
    with open(name, "w") as out:
        out.write(f"{dimensions}\n{count}\n")
        for _ in range(count):
            out.write(" ".join(f"{rng.gauss(0, 1):.6f}" for _ in range(dimensions)) + "\n")


def picture(name, width, height):
    with open(name, "wb") as out:
        out.write(b"P6\n%d %d\n255\n" % (width, height))
        for y in range(height):
            row = bytearray()
            for x in range(width):
                wave = math.sin(x * 0.05) * math.cos(y * 0.03)
                row += bytes((int(127 + 120 * wave), x * 255 // width, (x * y) & 255))
            out.write(row)


def graph(name, nodes, rng):
    with open(name, "w") as out:
        out.write("graph g {\n")
        for node in range(1, nodes):
            out.write(f"n{node} -- n{rng.randrange(node)};\n")
            out.write(f"n{node} -- n{rng.randrange(nodes)};\n")
        out.write("}\n")


def netlist(name):
    with open(name, "w") as out:
        out.write("ladder of diodes and inductors\nv1 n0 0 sin(0 5 1k)\n")
        for i in range(40):
            out.write(f"r{i} n{i} n{i + 1} 100\nc{i} n{i + 1} 0 10n\nd{i} n{i + 1} 0 dm\n")
        out.write(".model dm d(is=1e-14 rs=1 cjo=2p)\n.tran 1u 10\n.end\n")


def mesh(name, n):
    """A clamped block of bricks for CalculiX."""
    def node(i, j, k):
        return 1 + i + (n + 1) * (j + (n + 1) * k)

    span = range(n + 1)
    with open(name, "w") as out:
        out.write("*NODE, NSET=ALL\n")
        for k in span:
            for j in span:
                for i in span:
                    out.write(f"{node(i, j, k)}, {i}, {j}, {k}\n")
        out.write("*ELEMENT, TYPE=C3D8, ELSET=EALL\n")
        number = 0
        for k in range(n):
            for j in range(n):
                for i in range(n):
                    number += 1
                    low = [node(i, j, k), node(i + 1, j, k), node(i + 1, j + 1, k), node(i, j + 1, k)]
                    high = [at + (n + 1) ** 2 for at in low]
                    out.write(f"{number}, " + ", ".join(map(str, low + high)) + "\n")
        out.write("*NSET, NSET=FIX\n")
        for j in span:
            out.write("".join(f"{node(i, j, 0)},\n" for i in span))
        out.write("*MATERIAL, NAME=M\n*ELASTIC\n210000, .3\n*DENSITY\n7.8e-9\n*SOLID SECTION, ELSET=EALL, MATERIAL=M\n")
        out.write("*BOUNDARY\nFIX, 1, 3\n*STEP\n*DYNAMIC, DIRECT, EXPLICIT\n1e-8, 1\n")
        out.write(f"*CLOAD\n{node(n, n, n)}, 3, 1\n*END STEP\n")


def coordinates(name, rows, rng):
    with open(name, "w") as out:
        for _ in range(rows):
            out.write(f"{rng.uniform(5, 15):.6f} {rng.uniform(45, 55):.6f}\n")


def song(name, rng):
    """Sixteen channels of chords as a standard MIDI file of format 0."""
    track = bytearray(b"\x00\xff\x51\x03\x07\xa1\x20")
    for channel in range(16):
        track += bytes((0, 0xC0 | channel, rng.randrange(96)))
    for _ in range(20000):
        for channel in range(16):
            track += bytes((0, 0x90 | channel, 40 + rng.randrange(40), 90))
        track += bytes((0x60, 0x90, 60, 0))
    track += b"\x00\xff\x2f\x00"
    with open(name, "wb") as out:
        out.write(b"MThd\x00\x00\x00\x06\x00\x00\x00\x01\x00\x60MTrk" + len(track).to_bytes(4, "big") + track)


def heights(name, count, rng):
    """Points with a height, for gridding."""
    with open(name, "w") as out:
        for _ in range(count):
            x, y = rng.random(), rng.random()
            out.write(f"{x:.6f} {y:.6f} {math.sin(9 * x) * math.cos(7 * y) + rng.gauss(0, 0.01):.6f}\n")


def cloud(name, count, rng, header):
    """Numbered points in the unit cube."""
    with open(name, "w") as out:
        out.write(header)
        for number in range(1, count + 1):
            out.write(f"{number} {rng.random():.6f} {rng.random():.6f} {rng.random():.6f}\n")


def network(name, nodes, edges, rng):
    """Weighted edges, most of them within groups."""
    with open(name, "w") as out:
        for _ in range(edges):
            a = rng.randrange(nodes)
            b = a // 50 * 50 + rng.randrange(50) if rng.random() < 0.8 else rng.randrange(nodes)
            out.write(f"n{a}\tn{b}\t{rng.uniform(0.1, 1):.3f}\n")


def fits(name, width, height, rng):
    """An astronomical image: noise and stars."""
    pixels = [[rng.gauss(100, 5) for _ in range(width)] for _ in range(height)]
    for _ in range(width * height // 2000):
        x, y, flux = rng.randrange(4, width - 4), rng.randrange(4, height - 4), rng.expovariate(0.001)
        for dy in range(-4, 5):
            for dx in range(-4, 5):
                pixels[y + dy][x + dx] += flux * math.exp(-(dx * dx + dy * dy) / 3)
    cards = [
        ("SIMPLE", "T"), ("BITPIX", "-32"), ("NAXIS", "2"), ("NAXIS1", str(width)), ("NAXIS2", str(height)),
        ("CTYPE1", "'RA---TAN'"), ("CTYPE2", "'DEC--TAN'"), ("CRVAL1", "10.0"), ("CRVAL2", "10.0"),
        ("CRPIX1", str(width / 2)), ("CRPIX2", str(height / 2)), ("CDELT1", "-0.0003"), ("CDELT2", "0.0003"),
    ]
    header = "".join(f"{key:<8}= {value:>20}".ljust(80) for key, value in cards) + "END".ljust(80)
    body = b"".join(struct.pack(f">{width}f", *row) for row in pixels)
    with open(name, "wb") as out:
        out.write(header.ljust(-(-len(header) // 2880) * 2880).encode())
        out.write(body.ljust(-(-len(body) // 2880) * 2880, b"\0"))


def chain(name, residues, rng):
    """The alpha carbons of a protein that winds through space."""
    x, y, z, a, b = 0.0, 0.0, 0.0, 0.0, 0.0
    with open(name, "w") as out:
        for number in range(1, residues + 1):
            a += rng.gauss(0.9, 0.4)
            b += rng.gauss(0.0, 0.3)
            x, y, z = x + 3.8 * math.cos(a) * math.cos(b), y + 3.8 * math.sin(a) * math.cos(b), z + 3.8 * math.sin(b)
            x, y, z = (0.98 * value for value in (x, y, z))
            out.write(f"ATOM  {number:5d}  CA  ALA A{number:4d}    {x:8.3f}{y:8.3f}{z:8.3f}  1.00  0.00           C\n")
        out.write("END\n")


def spheres(name, count, rng):
    """A scene for Tachyon."""
    with open(name, "w") as out:
        out.write("BEGIN_SCENE\nRESOLUTION 1600 1200\nCAMERA\nZOOM 1.0\nASPECTRATIO 1.0\nANTIALIASING 2\nRAYDEPTH 6\n")
        out.write("CENTER 0 0 -8\nVIEWDIR 0 0 1\nUPDIR 0 1 0\nEND_CAMERA\n")
        out.write("LIGHT CENTER 4 5 -6 RAD 0.2 COLOR 1 1 1\nLIGHT CENTER -5 3 -6 RAD 0.2 COLOR 0.5 0.6 0.7\n")
        for _ in range(count):
            x, y, z = (rng.uniform(-3, 3) for _ in range(3))
            out.write(f"SPHERE CENTER {x:.3f} {y:.3f} {z:.3f} RAD {rng.uniform(0.1, 0.5):.3f}\n")
            out.write("TEXTURE AMBIENT 0.1 DIFFUSE 0.7 SPECULAR 0.2 OPACITY 1.0 ")
            out.write(f"COLOR {rng.random():.2f} {rng.random():.2f} {rng.random():.2f} TEXFUNC 0\n")
        out.write("END_SCENE\n")


def wave(name, source):
    """The generated sound with a header."""
    data = open(source, "rb").read()
    with open(name, "wb") as out:
        out.write(b"RIFF" + (36 + len(data)).to_bytes(4, "little") + b"WAVEfmt \x10\x00\x00\x00\x01\x00\x02\x00")
        out.write((44100).to_bytes(4, "little") + (176400).to_bytes(4, "little") + b"\x04\x00\x10\x00data")
        out.write(len(data).to_bytes(4, "little") + data)


def main():
    os.chdir(sys.argv[1])
    rng = random.Random(1)
    fasta("proteins.fa", gaps(family(400, 500, AMINO, rng), rng))
    fasta("few-proteins.fa", gaps(family(60, 350, AMINO, rng), rng))
    alignment = family(120, 4000, DNA, rng)
    fasta("alignment.fa", alignment)
    phylip("alignment.phy", alignment)
    nexus("alignment.nex", alignment[:40])
    fasta("family.afa", family(30, 300, AMINO, rng))
    fasta("database.fa", ["".join(rng.choices(AMINO, k=400)) for _ in range(20000)])
    svm("table.svm", 20000, 30, rng)
    linear_program("plan.lp", 700, 900, rng)
    points("points", 60000, 5, rng)
    picture("picture.ppm", 1000, 800)
    graph("tree.dot", 6000, rng)
    netlist("ladder.cir")
    mesh("block.inp", 14)
    coordinates("coordinates", 2000000, rng)
    song("song.mid", rng)
    wave("sound.wav", "sound.raw")
    with open("text") as text:
        words = text.read(600000)
    with open("words", "w") as out:
        out.write("".join(letter for letter in words if letter.isalpha() or letter == " "))
    rng = random.Random(2)
    heights("heights", 200000, rng)
    cloud("cloud", 150000, rng, "")
    cloud("cloud.node", 150000, rng, "150000 3 0 0\n")
    network("network.abc", 12000, 200000, rng)
    fits("sky.fits", 700, 700, rng)
    chain("one.pdb", 1500, rng)
    chain("two.pdb", 1400, rng)
    spheres("spheres.scene", 200, rng)
    fasta("genome.fa", ["".join(rng.choices(DNA, k=5000000))])


main()
