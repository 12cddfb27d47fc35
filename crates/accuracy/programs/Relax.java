/** Gauss-Seidel relaxation of a square grid: floating point in compiled Java. Usage: java Relax.java SECONDS */
public class Relax {
    static final int SIDE = 120;

    static void sweep(double[][] grid) {
        for (int i = 1; i < SIDE - 1; i++) {
            double[] up = grid[i - 1], row = grid[i], down = grid[i + 1];
            for (int j = 1; j < SIDE - 1; j++) {
                row[j] = 0.3 * (up[j] + down[j] + row[j - 1] + row[j + 1]) - 0.2 * row[j];
            }
        }
    }

    public static void main(String[] arguments) {
        long end = System.nanoTime() + (long) (Double.parseDouble(arguments[0]) * 1e9);
        double[][] grid = new double[SIDE][SIDE];
        for (int i = 0; i < SIDE; i++) {
            grid[0][i] = i;
        }
        while (System.nanoTime() < end) {
            for (int times = 0; times < 100; times++) {
                sweep(grid);
            }
        }
        if (!Double.isFinite(grid[1][1])) {
            System.exit(1);
        }
    }
}
